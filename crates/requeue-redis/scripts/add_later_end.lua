        end
        letter = add_level(key, value, priority, delay > 0)
    elseif delay == 0 then
        letter = add_now(key, value)
    end
    if delay > 0 then
        letter = delay_by(key, delay) and 'w' or 'u'
    end
    letters[#letters + 1] = letter
    answers[#letters + 1] = format('%.0f', delay)
end
count_dirty(dirty)
line_up(fresh)
if close_lines then
    close_lines()
end
tell_of_delays()
answers[1] = table.concat(letters)
return answers
